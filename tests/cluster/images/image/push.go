package main

import (
	"fmt"
	"os"
	"path/filepath"

	"kubectl-ray/tests/cluster/images/layer"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra"
)

func pushCommand() *cobra.Command {
	var config runtimeConfig
	var plainHTTP bool
	cmd := &cobra.Command{
		Use:   "push STORAGE BASE:TAG TREE NAME:TAG",
		Short: "add the files of a folder to an image that `store` made, push the result and print its digest",
		Long:  "Credentials are those of docker's configuration file.",
		Args:  cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			base, err := name.NewTag(args[1])
			if err != nil {
				return err
			}
			var options []name.Option
			if plainHTTP {
				options = append(options, name.Insecure)
			}
			tag, err := name.NewTag(args[3], options...)
			if err != nil {
				return err
			}
			image, err := storage{args[0]}.image(base)
			if err != nil {
				return fmt.Errorf("reading %s: %w", base, err)
			}
			scratch, err := os.MkdirTemp("", "image-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			image, err = add(image, args[2], filepath.Join(scratch, "layer"), &config)
			if err != nil {
				return err
			}
			if err := remote.Write(tag, image, remote.WithContext(cmd.Context()), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
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
	cmd.Flags().BoolVar(&plainHTTP, "plain-http", false, "the registry may speak HTTP without TLS")
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
