package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

const mountinfo = `22 1 0:20 / / rw,relatime - overlay overlay rw
23 22 0:21 / /proc rw - proc proc rw
24 22 8:1 /pods/1/volumes/context /workspace rw - ext4 /dev/vda rw
25 22 8:1 /pods/1/etc-hosts /etc/hosts rw - ext4 /dev/vda rw
`

func TestProtectedPathsAreNeverWritten(t *testing.T) {
	r := root{path: "/", protected: protectedPaths(mountinfo, []string{"/opt/mine/"})}
	for path, want := range map[string]bool{
		"/etc/hosts": false, "/workspace/Dockerfile": false, "/proc/1": false, "/kaniko/executor": false, "/var/run/x": false, "/opt/mine/x": false,
		"/etc/passwd": true, "/etc": true, "/var/running": true, "/workspaces": true,
	} {
		if r.owns(path) != want {
			t.Errorf("%s: owned %v", path, !want)
		}
	}
}

func archive(t *testing.T, headers ...tar.Header) *tar.Reader {
	t.Helper()
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, header := range headers {
		header.Uid, header.Gid = os.Getuid(), os.Getgid()
		content := []byte(nil)
		if header.Typeflag == tar.TypeReg {
			content = []byte(header.Name)
			header.Size = int64(len(content))
		}
		if err := writer.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return tar.NewReader(&buffer)
}

func TestExtractKeepsTimesAndModesAndTakesWhiteouts(t *testing.T) {
	r := root{path: t.TempDir(), protected: map[string]bool{"/proc": true}}
	then := time.Unix(1_600_000_000, 0)
	first := archive(t,
		tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o750, ModTime: then},
		tar.Header{Name: "dir/tool", Typeflag: tar.TypeReg, Mode: 0o4755, ModTime: then},
		tar.Header{Name: "dir/old", Typeflag: tar.TypeReg, Mode: 0o644, ModTime: then},
		tar.Header{Name: "dir/hard", Typeflag: tar.TypeLink, Linkname: "dir/tool"},
		tar.Header{Name: "soft", Typeflag: tar.TypeSymlink, Linkname: "/nowhere"},
		tar.Header{Name: "proc/1", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "../escape", Typeflag: tar.TypeReg, Mode: 0o644},
	)
	if err := r.extract(first); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(r.path, "dir/tool"))
	if err != nil || info.Mode() != 0o755|os.ModeSetuid || !info.ModTime().Equal(then) {
		t.Errorf("dir/tool: %v %v (%v)", info.Mode(), info.ModTime(), err)
	}
	if info, err := os.Stat(filepath.Join(r.path, "dir")); err != nil || info.Mode().Perm() != 0o750 || !info.ModTime().Equal(then) {
		t.Errorf("dir: %v (%v)", info, err)
	}
	for path, want := range map[string]bool{"proc/1": false, "../escape": false, "escape": true, "soft": true, "dir/hard": true} {
		if _, err := os.Lstat(filepath.Join(r.path, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := r.extract(archive(t, tar.Header{Name: "dir/.wh.old", Typeflag: tar.TypeReg}, tar.Header{Name: "soft", Typeflag: tar.TypeReg, Mode: 0o644})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(r.path, "dir/old")); err == nil {
		t.Error("dir/old is still there")
	}
	if info, err := os.Lstat(filepath.Join(r.path, "soft")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("soft: %v (%v)", info, err)
	}
}

func TestConfigurationFollowsTheInstructions(t *testing.T) {
	stage, _, err := parse(dockerfile(t, `FROM a
ARG WHO=nobody
ENV PLACE="a b" OTHER=$WHO
ENV PLACE="${PLACE}c"
LABEL l=$PLACE
SHELL ["/bin/bash", "-eo", "pipefail", "-c"]
USER ray
CMD run $PLACE
ENTRYPOINT ["/x"]
`))
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{image: mutate.MediaType(empty.Image, types.OCIManifestSchema1), args: map[string]string{}, options: &options{}}
	config, err := b.image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	b.config = config.DeepCopy()
	for _, command := range stage.Commands {
		if err := b.execute(t.Context(), command, map[string]string{"WHO": "me"}); err != nil {
			t.Fatal(err)
		}
	}
	image, err := b.finish()
	if err != nil {
		t.Fatal(err)
	}
	built, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := built.Config
	if len(got.Env) != 2 || got.Env[0] != "OTHER=me" || got.Env[1] != "PLACE=a bc" || got.Labels["l"] != "a bc" || got.User != "ray" {
		t.Errorf("%+v", got)
	}
	if len(got.Cmd) != 5 || got.Cmd[4] != "run $PLACE" || len(got.Entrypoint) != 1 || len(built.History) != len(stage.Commands) {
		t.Errorf("%+v", got)
	}
	if err := b.configure(&instructions.StopSignalCommand{}, nil); err == nil {
		t.Error("an instruction that is not carried out must be refused")
	}
}
