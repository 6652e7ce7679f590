package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// reach tells how a registry is talked to: whether plain HTTP is allowed, and over what.
func (o *registryOptions) reach(host string, insecure, skipVerify bool) ([]name.Option, http.RoundTripper) {
	transport := remote.DefaultTransport.(*http.Transport).Clone()
	if skipVerify || slices.Contains(o.skipTLSVerifyRegistries, host) {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	if insecure || slices.Contains(o.insecureRegistries, host) {
		return []name.Option{name.Insecure}, transport
	}
	return nil, transport
}

// destination parses a place to push to.
func (o *registryOptions) destination(text string) (name.Tag, http.RoundTripper, error) {
	tag, err := name.NewTag(text)
	if err != nil {
		return name.Tag{}, nil, fmt.Errorf("getting tag for destination: %w", err)
	}
	names, transport := o.reach(tag.RegistryStr(), o.insecure, o.skipTLSVerify)
	tag, err = name.NewTag(text, names...)
	return tag, transport, err
}

func (o *registryOptions) checkPushPermissions() error {
	if o.skipPushPermissionCheck {
		return nil
	}
	for _, text := range o.destinations {
		tag, transport, err := o.destination(text)
		if err != nil {
			return err
		}
		providers()
		if err := remote.CheckPushPermission(tag, authn.DefaultKeychain, transport); err != nil {
			warn("make sure you entered the correct tag name, that you are authenticated correctly, and try again.")
			return fmt.Errorf("checking push permission for %q: %w", text, err)
		}
	}
	return nil
}

// base reads a base image's manifest and configuration, from a mirror first where docker.io is meant.
func (o *registryOptions) base(ctx context.Context, text string, platform *v1.Platform) (v1.Image, error) {
	reference, err := name.ParseReference(text)
	if err != nil {
		return nil, err
	}
	info("Retrieving image manifest %s", text)
	if reference.Context().RegistryStr() == name.DefaultRegistry {
		for _, mirror := range o.mirrors {
			image, err := o.retrieve(ctx, mirror, reference, platform)
			if err == nil {
				return image, nil
			}
			warn("Failed to retrieve image %s from remapped registry %s: %s. Will try with the next registry, or fallback to the original registry.", reference, mirror, err)
			if o.skipDefaultFallback {
				return nil, fmt.Errorf("image not found on any configured mapped registries for %s", reference)
			}
		}
	}
	return o.retrieve(ctx, reference.Context().RegistryStr(), reference, platform)
}

func (o *registryOptions) retrieve(ctx context.Context, host string, reference name.Reference, platform *v1.Platform) (v1.Image, error) {
	names, transport := o.reach(host, o.insecurePull, o.skipTLSVerifyPull)
	registry, err := name.NewRegistry(host, names...)
	if err != nil {
		return nil, err
	}
	repository := reference.Context()
	repository.Registry = registry
	var at name.Reference = repository.Tag(reference.Identifier())
	if _, isDigest := reference.(name.Digest); isDigest {
		at = repository.Digest(reference.Identifier())
	}
	info("Retrieving image %s from registry %s", reference, host)
	providers()
	for attempt := 0; ; attempt++ {
		image, err := remote.Image(at, remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithPlatform(*platform))
		if err == nil {
			return image, nil
		}
		if attempt >= o.imageDownloadRetry {
			return nil, fmt.Errorf("unable to complete operation after %d attempts, last error: %w", attempt, err)
		}
	}
}

// push writes the image to every destination, and what it became to the files that were asked for.
func (o *registryOptions) push(ctx context.Context, image v1.Image) error {
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	if o.digestFile != "" {
		if err := os.WriteFile(o.digestFile, []byte(digest.String()), 0o644); err != nil {
			return fmt.Errorf("writing digest to file failed: %w", err)
		}
	}
	var names []byte
	for _, text := range o.destinations {
		tag, transport, err := o.destination(text)
		if err != nil {
			return err
		}
		names = fmt.Appendf(names, "%s@%s\n", tag.Context(), digest)
		if err := o.pushTo(ctx, image, tag, transport, digest); err != nil {
			return err
		}
	}
	if o.imageNameAndDigestFile != "" {
		return os.WriteFile(o.imageNameAndDigestFile, names, 0o644)
	}
	return nil
}

func (o *registryOptions) pushTo(ctx context.Context, image v1.Image, tag name.Tag, transport http.RoundTripper, digest v1.Hash) error {
	providers()
	info("Pushing image to %s", tag)
	for attempt := 0; ; attempt++ {
		err := remote.Write(tag, image, remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		if err == nil {
			info("Pushed %s@%s", tag.Context(), digest)
			return nil
		}
		if attempt >= o.pushRetry {
			return fmt.Errorf("failed to push to destination %s: %w", tag, err)
		}
	}
}

// providers is a line that the real executor writes before each use of credentials; logs are compared with it.
func providers() { info("credential providers by priority: [env, google, ecr, acr, gitlab]") }
