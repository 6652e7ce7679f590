package layer

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

func place(t *testing.T, root, path, content string) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func scan(t *testing.T, root string) Tree {
	t.Helper()
	tree, err := Scan(root, func(path string) bool { return path == filepath.Join(root, "skipped") })
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestDiffFindsWhatChanged(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"same", "content", "mode", "gone", "folder/a", "folder/b", "skipped/x"} {
		place(t, root, path, "one")
	}
	before := scan(t, root)
	place(t, root, "content", "two") // of the same size
	place(t, root, "new", "one")
	place(t, root, "skipped/y", "one")
	if err := os.Chmod(filepath.Join(root, "mode"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"gone", "folder"} {
		if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	changed, removed := Diff(before, scan(t, root))
	if want := []string{"content", "mode", "new"}; !reflect.DeepEqual(changed, want) {
		t.Errorf("changed: %v, want %v", changed, want)
	}
	if want := []string{"folder", "gone"}; !reflect.DeepEqual(removed, want) {
		t.Errorf("removed: %v, want %v", removed, want)
	}
}

func TestCreateWritesLinksAndWhiteouts(t *testing.T) {
	root := t.TempDir()
	place(t, root, "dir/file", "content")
	if err := os.Link(filepath.Join(root, "dir/file"), filepath.Join(root, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dir/file", filepath.Join(root, "soft")); err != nil {
		t.Fatal(err)
	}
	for _, media := range []types.MediaType{types.OCILayer, types.OCILayerZStd, types.DockerLayer} {
		layer, err := Create(filepath.Join(t.TempDir(), "layer"), root, scan(t, root).Paths(), []string{"dir/old"}, media)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := layer.MediaType(); err != nil || got != media {
			t.Errorf("media type %s (%v), want %s", got, err, media)
		}
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]byte{"dir/": tar.TypeDir, "dir/file": tar.TypeReg, "hard": tar.TypeLink, "soft": tar.TypeSymlink, "dir/.wh.old": tar.TypeReg}
		got := map[string]byte{}
		for archive := tar.NewReader(content); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got[header.Name] = header.Typeflag
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: entries %v, want %v", media, got, want)
		}
	}
}

func TestWhiteout(t *testing.T) {
	for path, want := range map[string]struct {
		deleted    string
		opaque, ok bool
	}{
		"/a/.wh.b":         {"/a/b", false, true},
		"/a/.wh..wh..opq":  {"/a", true, true},
		"/a/.where/b":      {"", false, false},
		"/a/file.wh.thing": {"", false, false},
	} {
		if deleted, opaque, ok := Whiteout(path); deleted != want.deleted || opaque != want.opaque || ok != want.ok {
			t.Errorf("%s: %q %v %v", path, deleted, opaque, ok)
		}
	}
}
