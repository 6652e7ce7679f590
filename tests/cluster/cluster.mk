# Included by the Makefile: the local Kubernetes of the tests.
CLUSTER ?= tests/cluster/cluster.sh
STATE ?= .local

.PHONY: deps cluster cluster-down cluster-images cluster-test

deps: ## Debian packages that the local Kubernetes needs
	@tests/cluster/deps.sh node

cluster: ## a real one-node Kubernetes; kubeconfig at .local/kubeconfig
	@$(CLUSTER) up $(STATE) node

cluster-down: ## takes it away, whole
	@$(CLUSTER) down $(STATE)

cluster-images: deps ## the local Kubernetes' binary and the images that it starts with, into the cache
	@tests/cluster/build.sh kube
	@for image in pause glibc kaniko ray; do tests/cluster/images.sh $$image || exit 1; done

cluster-test: ## two local clusters side by side, and the stand-in for kaniko
	@tests/cluster/test.sh
