package main

import (
	"os"
	"path/filepath"
	"runtime"

	"kubectl-ray/tests/cluster/images/layer"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra"
)

const architecture = runtime.GOARCH

func storeCommand() *cobra.Command {
	var config runtimeConfig
	cmd := &cobra.Command{
		Use:   "store ROOTFS NAME:TAG STORAGE",
		Short: "pack a folder into an image, laid out as a registry's file system storage",
		Args:  cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			tag, err := name.NewTag(args[1])
			if err != nil {
				return err
			}
			scratch, err := os.MkdirTemp(args[2], ".layer-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			image, err := fromFolder(args[0], filepath.Join(scratch, "layer"), &config)
			if err != nil {
				return err
			}
			return storage{args[2]}.put(image, tag)
		},
	}
	config.flags(cmd)
	return cmd
}

// fromFolder packs the folder as one layer; zstd, because unpacking it is what a test waits for.
func fromFolder(root, layerFile string, config *runtimeConfig) (v1.Image, error) {
	tree, err := layer.Scan(root, nil)
	if err != nil {
		return nil, err
	}
	content, err := layer.Create(layerFile, root, tree.Paths(), nil, types.OCILayerZStd)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: content, History: v1.History{CreatedBy: "image store"}})
	if err != nil {
		return nil, err
	}
	return config.apply(image)
}
