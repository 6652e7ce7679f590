package main

import (
	"fmt"
	"os"
	"path/filepath"

	"kubectl-ray/tests/cluster/images/layer"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra"
)

func pushCommand() *cobra.Command {
	var config runtimeConfig
	cmd := &cobra.Command{
		Use:   "push BASE TREE NAME:TAG",
		Short: "add the files of a folder to an image of a plain-HTTP registry, push the result beside it and print its digest",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			base, err := name.ParseReference(args[0], name.Insecure)
			if err != nil {
				return err
			}
			tag, err := name.NewTag(args[2], name.Insecure)
			if err != nil {
				return err
			}
			image, err := remote.Image(base, remote.WithContext(cmd.Context()))
			if err != nil {
				return fmt.Errorf("reading %s: %w", base, err)
			}
			scratch, err := os.MkdirTemp("", "image-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			image, err = add(image, args[1], filepath.Join(scratch, "layer"), &config)
			if err != nil {
				return err
			}
			if err := remote.Write(tag, image, remote.WithContext(cmd.Context())); err != nil {
				return fmt.Errorf("pushing %s: %w", tag, err)
			}
			digest, err := image.Digest()
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), digest)
			return nil
		},
	}
	config.flags(cmd)
	return cmd
}

func add(image v1.Image, root, layerFile string, config *runtimeConfig) (v1.Image, error) {
	tree, err := layer.Scan(root, nil)
	if err != nil {
		return nil, err
	}
	content, err := layer.Create(layerFile, root, tree.Paths(), nil, types.OCILayerZStd)
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{Layer: content, History: v1.History{CreatedBy: "image push"}})
	if err != nil {
		return nil, err
	}
	return config.apply(image)
}
