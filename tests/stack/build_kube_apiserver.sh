#!/bin/sh
# Builds kube-apiserver from Debian's source package into the directory DIR, for tests/stack/test_kubernetes.py.
# It needs a `deb-src` entry among the sources of APT, golang-1.19-go, make, gcc, jq and rsync, some 3 GB, and some minutes.
set -eu
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
target=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"
apt-get -q source --download-only kubernetes
mkdir -p go/src/k8s.io/kubernetes
tar xzf kubernetes_*.orig.tar.gz -C go/src/k8s.io/kubernetes --strip-components=1
cd go/src/k8s.io/kubernetes
PATH=/usr/lib/go-1.19/bin:$PATH HOME=$work GOPATH=$work/go GOCACHE=$work/cache GOPROXY=off CGO_ENABLED=0 \
	make WHAT=cmd/kube-apiserver
cp _output/bin/kube-apiserver "$target"
