// Command kube is a whole Kubernetes in one binary: etcd, the control plane, the node agent, the service proxy,
// DNS and kubectl, chosen by the first argument or by the name that it is called by.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components are the commands that share the usual start: a cobra command with its own flags.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	if filepath.Base(os.Args[0]) != "kubectl" {
		if len(os.Args) < 2 {
			fmt.Fprintln(os.Stderr, "usage: kube kubectl|etcd|coredns|kube-apiserver|kube-controller-manager|kube-scheduler|kube-proxy|kubelet ARGUMENTS...")
			os.Exit(2)
		}
		os.Args = os.Args[1:]
	}
	switch name := filepath.Base(os.Args[0]); name {
	case "kubectl":
		// Reads os.Args itself, to hand `kubectl ray` to a kubectl-ray in PATH.
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	case "etcd":
		etcdmain.Main(os.Args)
	case "coredns":
		dnsserver.Directives = []string{"errors", "cache", "hosts", "kubernetes", "forward"}
		coremain.Run()
	default:
		command, known := components[name]
		if !known {
			fmt.Fprintf(os.Stderr, "kube: unknown component %q\n", name)
			os.Exit(2)
		}
		c := command()
		c.SetArgs(os.Args[1:])
		os.Exit(cli.Run(c))
	}
}
