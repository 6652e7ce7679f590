package layer

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// whiteout marks a path of a lower layer as deleted (OCI image specification, "Whiteouts").
const whiteout = ".wh."

// Create writes the changed paths below root, and whiteouts for the removed ones, as a compressed tar to file, and opens it as a layer.
func Create(file, root string, changed, removed []string, media types.MediaType) (v1.Layer, error) {
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	buffer := bufio.NewWriterSize(out, 1<<20)
	compressor, err := compressorFor(media, buffer)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressor)
	if err := write(archive, root, changed, removed); err != nil {
		return nil, err
	}
	for _, step := range []func() error{archive.Close, compressor.Close, buffer.Flush, out.Close} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return tarball.LayerFromFile(file, tarball.WithMediaType(media))
}

func compressorFor(media types.MediaType, w io.Writer) (io.WriteCloser, error) {
	if media == types.OCILayerZStd {
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault))
	}
	return gzip.NewWriter(w), nil
}

type inode struct{ device, number uint64 }

func write(archive *tar.Writer, root string, changed, removed []string) error {
	written := map[inode]string{}
	for _, path := range changed {
		if err := writeFile(archive, root, path, written); err != nil {
			return fmt.Errorf("packing %s: %w", path, err)
		}
	}
	for _, path := range removed {
		name := filepath.Join(filepath.Dir(path), whiteout+filepath.Base(path))
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(archive *tar.Writer, root, path string, written map[inode]string) error {
	full := filepath.Join(root, path)
	info, err := os.Lstat(full)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeSocket|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
		return nil // nothing that an image can hold for later
	}
	var target string
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(full); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = path
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uname, header.Gname, header.Format = "", "", tar.FormatPAX
	header.AccessTime, header.ChangeTime = header.ModTime, header.ModTime
	header.PAXRecords = capabilities(full, info)
	if sys := info.Sys().(*syscall.Stat_t); info.Mode().IsRegular() && sys.Nlink > 1 {
		key := inode{uint64(sys.Dev), sys.Ino}
		if first, seen := written[key]; seen {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
			return archive.WriteHeader(header)
		}
		written[key] = path
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(full)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

const capabilityAttribute = "security.capability"

// capabilities are the one extended attribute that programs in images need (ping and the like).
func capabilities(path string, info fs.FileInfo) map[string]string {
	if !info.Mode().IsRegular() {
		return nil
	}
	value := make([]byte, 64)
	n, err := syscall.Getxattr(path, capabilityAttribute, value)
	if err != nil || n == 0 {
		return nil
	}
	return map[string]string{"SCHILY.xattr." + capabilityAttribute: string(value[:n])}
}

// SetCapabilities gives path what a tar header recorded by capabilities holds.
func SetCapabilities(path string, header *tar.Header) error {
	for key, value := range header.PAXRecords {
		name, ok := strings.CutPrefix(key, "SCHILY.xattr.")
		if ok && name == capabilityAttribute {
			return syscall.Setxattr(path, name, []byte(value), 0)
		}
	}
	return nil
}

// Whiteout tells whether a layer's entry marks a deletion: the deleted path, and whether only the content of that folder goes.
func Whiteout(path string) (deleted string, opaque, ok bool) {
	dir, base := filepath.Split(path)
	if base == ".wh..wh..opq" {
		return filepath.Clean(dir), true, true
	}
	if name, found := strings.CutPrefix(base, whiteout); found {
		return filepath.Join(dir, name), false, true
	}
	return "", false, false
}
