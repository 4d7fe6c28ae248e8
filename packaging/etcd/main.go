// etcd 3.6, for systems that package an older one. docs/etcd.md says how to build it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
