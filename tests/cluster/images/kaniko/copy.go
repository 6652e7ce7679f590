package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// placement is where and how a COPY's files arrive.
type placement struct {
	destination string
	intoFolder  bool
	uid, gid    int
	mode        *fs.FileMode // of files, where --chmod gives one
}

func (b *builder) copy(command instructions.Command, what instructions.SourcesAndDest, chown, chmod string) error {
	sources, err := b.sources(what.SourcePaths)
	if err != nil {
		return err
	}
	to := placement{destination: what.DestPath}
	if !filepath.IsAbs(to.destination) {
		to.destination = filepath.Join("/", b.config.Config.WorkingDir, to.destination)
	}
	existing, err := os.Stat(to.destination)
	to.intoFolder = strings.HasSuffix(what.DestPath, "/") || len(sources)+len(what.SourceContents) > 1 || err == nil && existing.IsDir()
	if to.uid, to.gid, err = ownership(chown); err != nil {
		return err
	}
	if chmod != "" {
		bits, err := strconv.ParseUint(chmod, 8, 12)
		if err != nil {
			return fmt.Errorf("--chmod=%s: an octal number is needed", chmod)
		}
		mode := fs.FileMode(bits)
		to.mode = &mode
	}
	for _, source := range sources {
		if err := to.copy(source); err != nil {
			return err
		}
		if err := b.cache.extendByFiles(source); err != nil {
			return err
		}
	}
	for _, document := range what.SourceContents {
		if err := to.write(to.path(document.Path), []byte(document.Data), 0o644); err != nil {
			return err
		}
	}
	return b.snapshot(command)
}

// sources are the paths in the build context that the patterns name.
func (b *builder) sources(patterns []string) ([]string, error) {
	var sources []string
	for _, pattern := range patterns {
		// Cleaned as if the context were the root, so that no .. leads out of it.
		matches, err := filepath.Glob(filepath.Join(b.options.context, filepath.Join("/", pattern)))
		if err != nil {
			return nil, err
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("resolving src: failed to get fileinfo for %s: no such file or directory", filepath.Join(b.options.context, pattern))
		}
		sources = append(sources, matches...)
	}
	return sources, nil
}

func (p placement) path(source string) string {
	if p.intoFolder {
		return filepath.Join(p.destination, filepath.Base(source))
	}
	return p.destination
}

// copy copies a file, or what is in a folder.
func (p placement) copy(source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return p.copyFile(source, p.path(source), info)
	}
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		target := filepath.Join(p.destination, relative)
		switch {
		case d.IsDir():
			return p.folder(target)
		case d.Type()&fs.ModeSymlink != 0:
			return p.link(path, target)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return p.copyFile(path, target, info)
	})
}

func (p placement) folder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chown(path, p.uid, p.gid)
}

func (p placement) link(source, path string) error {
	target, err := os.Readlink(source)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil {
		return err
	}
	return os.Lchown(path, p.uid, p.gid)
}

func (p placement) copyFile(source, path string, info fs.FileInfo) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return p.write(path, content, info.Mode().Perm())
}

func (p placement) write(path string, content []byte, mode fs.FileMode) error {
	if err := p.folder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	if err := os.Chown(path, p.uid, p.gid); err != nil {
		return err
	}
	if p.mode != nil {
		mode = *p.mode
	}
	return os.Chmod(path, mode)
}
