package main

import (
	"context"
	"os"

	"github.com/stepvan/stepvan/cmd/stepvan/command"
)

func main() {
	os.Exit(command.Execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
