// Package layer turns folders, and what changed in them, into image layers.
package layer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Entry is what of a file tells whether it changed. The change time cannot be set by a program, so content needs no reading.
type Entry struct {
	Mode     fs.FileMode
	UID, GID uint32
	Size     int64
	Modified time.Time
	Changed  time.Time
	Target   string // of a symbolic link
}

// Tree holds the entries below a root by their path relative to it, without the root itself.
type Tree map[string]Entry

// Scan reads the tree below root. A folder for which skip is true is left out with all below it.
func Scan(root string, skip func(path string) bool) (Tree, error) {
	tree := Tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a file that went while we looked
			return nil
		}
		if err != nil {
			return err
		}
		if path == root {
			return nil
		}
		if skip != nil && skip(path) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		entry, err := stat(path, d)
		if err != nil {
			return err
		}
		tree[relative] = entry
		return nil
	})
	return tree, err
}

func stat(path string, d fs.DirEntry) (Entry, error) {
	info, err := d.Info()
	if err != nil {
		return Entry{}, err
	}
	sys := info.Sys().(*syscall.Stat_t)
	entry := Entry{
		Mode: info.Mode(), UID: sys.Uid, GID: sys.Gid, Size: info.Size(),
		Modified: info.ModTime(), Changed: time.Unix(sys.Ctim.Sec, sys.Ctim.Nsec),
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		entry.Target, err = os.Readlink(path)
	}
	return entry, err
}

// Diff lists, sorted, the paths of after that are new or other than in before, and the topmost paths that are gone.
func Diff(before, after Tree) (changed, removed []string) {
	for path, entry := range after {
		if old, known := before[path]; !known || old != entry {
			changed = append(changed, path)
		}
	}
	for path := range before {
		if _, stays := after[path]; stays {
			continue
		}
		parent := filepath.Dir(path)
		_, had := before[parent]
		_, has := after[parent]
		if had && !has { // goes with its folder
			continue
		}
		removed = append(removed, path)
	}
	slices.Sort(changed)
	slices.Sort(removed)
	return changed, removed
}

// Paths lists all paths of the tree, sorted, so that folders come before what is in them.
func (t Tree) Paths() []string {
	paths := make([]string, 0, len(t))
	for path := range t {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}
