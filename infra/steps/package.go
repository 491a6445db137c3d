package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bootstrap is the program's name that the runtime provided.al2023 wants.
const bootstrap = "bootstrap"

// packageAll builds every function with a main for Lambda, into <function>.zip. The same source gives the same bytes, so that Terraform sees only what has changed.
func packageAll(ctx context.Context, args []string, out io.Writer) error {
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	mains, err := filepath.Glob(filepath.Join(root, "functions", "*", "lambda", "main.go"))
	if err != nil {
		return err
	}
	if len(mains) == 0 {
		return fmt.Errorf("no functions below %s", root)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, path := range mains {
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		size, err := packageOne(ctx, root, filepath.Dir(path), filepath.Join(dir, name+".zip"))
		if err != nil {
			return fmt.Errorf("function %s: %w", name, err)
		}
		fmt.Fprintf(out, "%-8s %5.1f MB\n", name, float64(size)/1e6)
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	b, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w: run it in a clone of the repository", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// packageOne builds one main, and returns the size of its zip file.
func packageOne(ctx context.Context, root, main, zipped string) (size int64, err error) {
	temporary, err := os.MkdirTemp("", "varve-package-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	program := filepath.Join(temporary, bootstrap)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", program, main)
	build.Dir, build.Stderr = root, os.Stderr
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("go build: %w", err)
	}
	in, err := os.Open(program)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	partial := zipped + ".partial"
	if err := writeZip(partial, in); err != nil {
		return 0, errors.Join(err, os.Remove(partial))
	}
	if err := os.Rename(partial, zipped); err != nil {
		return 0, err
	}
	info, err := os.Stat(zipped)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// writeZip writes a zip file whose only file is the program, and whose bytes depend on nothing else.
func writeZip(path string, program io.Reader) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	z := zip.NewWriter(file)
	header := &zip.FileHeader{Name: bootstrap, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(fs.FileMode(0o755))
	w, err := z.CreateHeader(header)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, program); err != nil {
		return err
	}
	return z.Close()
}
