package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kubectl-ray/tests/cluster/images/layer"

	"github.com/google/go-containerregistry/pkg/v1"
)

// root is the container's own root folder, without the paths that belong to the container and not to the image.
type root struct {
	path      string
	protected map[string]bool
}

func currentRoot(ignored []string) (root, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return root{}, err
	}
	return root{path: "/", protected: protectedPaths(string(mounts), ignored)}, nil
}

// protectedPaths are the mount points (fifth field of proc's mountinfo), the executor's own folder and what the user named.
func protectedPaths(mountinfo string, ignored []string) map[string]bool {
	protected := map[string]bool{"/kaniko": true, "/proc": true, "/sys": true, "/dev": true, "/var/run": true}
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] != "/" {
			protected[fields[4]] = true
		}
	}
	for _, path := range ignored {
		protected[filepath.Clean(path)] = true
	}
	return protected
}

func (r root) scan() (layer.Tree, error) {
	return layer.Scan(r.path, func(path string) bool { return r.protected[path] })
}

// owns tells whether a path, absolute in the image, may be written: neither it nor a folder above it is protected.
func (r root) owns(path string) bool {
	for ; path != "/"; path = filepath.Dir(path) {
		if r.protected[path] {
			return false
		}
	}
	return true
}

// unpack writes the image's layers, lowest first.
func (r root) unpack(image v1.Image) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := r.unpackLayer(l); err != nil {
			return err
		}
	}
	return nil
}

func (r root) unpackLayer(l v1.Layer) error {
	content, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	return r.extract(tar.NewReader(content))
}

func (r root) extract(archive *tar.Reader) error {
	var folders []*tar.Header
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		path := filepath.Join("/", header.Name)
		if path == "/" || !r.owns(path) {
			continue
		}
		if deleted, opaque, ok := layer.Whiteout(path); ok {
			if err := r.remove(deleted, opaque); err != nil {
				return err
			}
			continue
		}
		if err := r.place(path, header, archive); err != nil {
			return fmt.Errorf("extracting %s: %w", path, err)
		}
		if header.Typeflag == tar.TypeDir {
			folders = append(folders, header)
		}
	}
	// Last, deepest first: writing into a folder changes its time.
	for _, header := range slices.Backward(folders) {
		if err := os.Chtimes(filepath.Join(r.path, header.Name), header.ModTime, header.ModTime); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r root) remove(path string, onlyContent bool) error {
	full := filepath.Join(r.path, path)
	if !onlyContent {
		return os.RemoveAll(full)
	}
	entries, err := os.ReadDir(full)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(full, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// place writes one entry. The order matters: changing the owner clears set-user bits and capabilities.
func (r root) place(path string, header *tar.Header, content io.Reader) error {
	full := filepath.Join(r.path, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	old, err := os.Lstat(full)
	if err == nil && (!old.IsDir() || header.Typeflag != tar.TypeDir) {
		if err := os.RemoveAll(full); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeDir:
		err = os.MkdirAll(full, 0o755)
	case tar.TypeReg:
		err = writeContent(full, content)
	case tar.TypeSymlink:
		if err := os.Symlink(header.Linkname, full); err != nil {
			return err
		}
		return os.Lchown(full, header.Uid, header.Gid)
	case tar.TypeLink:
		return os.Link(filepath.Join(r.path, header.Linkname), full)
	default: // devices and pipes: the container brings its own /dev
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Chown(full, header.Uid, header.Gid); err != nil {
		return err
	}
	if err := os.Chmod(full, header.FileInfo().Mode()); err != nil {
		return err
	}
	if err := layer.SetCapabilities(full, header); err != nil {
		return err
	}
	return os.Chtimes(full, header.ModTime, header.ModTime)
}

func writeContent(path string, content io.Reader) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	return file.Close()
}
