package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/localdev/minio"
	"github.com/varvelog/varve/localdev/minio/stack"
)

const (
	findMinIO  = "auto" // what --minio says without a program
	minioBuilt = ".tools/bin/minio"
)

// minioProgram is the program of MinIO's server.
func minioProgram(name string) (string, error) {
	if name != findMinIO {
		return name, nil
	}
	if built, err := exec.LookPath(filepath.FromSlash("./" + minioBuilt)); err == nil {
		return built, nil
	}
	found, err := exec.LookPath("minio")
	if err != nil {
		return "", fmt.Errorf("there is no MinIO, neither as %s nor on PATH: 'make minio' builds its server, or give its program with --minio=PROGRAM", minioBuilt)
	}
	return found, nil
}

// minioFolder is where the log on MinIO has its data.
func (a *app) minioFolder() (string, error) {
	objects, err := embedded.ObjectsFolder(a.url)
	if err != nil {
		return "", usagef("--minio makes a log of its own, in the folder minio of a directory: --log %q is none; valid is file://./DIR or file:///DIR, or no --log and no VARVE_LOG", a.url)
	}
	return filepath.Join(filepath.Dir(objects), "minio"), nil
}

// onMinIO starts MinIO and the engine, and runs do with their log as that of the command line. They end with it; when MinIO ends of itself, do is asked to end.
func (a *app) onMinIO(ctx context.Context, program string, do func(context.Context) error) (err error) {
	folder, err := a.minioFolder()
	if err != nil {
		return err
	}
	if program, err = minioProgram(program); err != nil {
		return err
	}
	a.progress("starting %s on %s", program, folder)
	s, err := stack.Start(ctx, a.env, program, folder, dynamodb.Options{File: filepath.Join(folder, "table.sqlite")})
	if errors.Is(err, minio.ErrInUse) {
		return fmt.Errorf("%w; another shell uses its log by: . %s", err, quoted(filepath.Join(folder, "env")))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	leave, err := a.enter(folder, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	return whileUp(ctx, s.Watch, do)
}

// whileUp runs do. Its context ends when watch finds that MinIO has ended.
func whileUp(ctx context.Context, watch, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var ended error
	watching.Go(func() {
		ended = watch(ctx)
		cancel()
	})
	err := do(ctx)
	cancel()
	watching.Wait()
	return errors.Join(ended, err)
}

// enter makes the log on MinIO that of this command and, by a file that only this user can read, of shells that want it. leave removes the file.
func (a *app) enter(folder string, s *stack.Stack) (leave func() error, err error) {
	script := "# Of the 'varve dev --minio' that runs. For another shell: . " + quoted(filepath.Join(folder, "env")) + "\n"
	for _, name := range []string{"AWS_PROFILE", "AWS_SESSION_TOKEN"} { // they would be mixed with the keys
		script += "unset " + name + "\n"
		if err := os.Unsetenv(name); err != nil {
			return nil, err
		}
	}
	for _, pair := range s.Environment() {
		name, value, _ := strings.Cut(pair, "=")
		script += "export " + name + "=" + quoted(value) + "\n"
		if err := os.Setenv(name, value); err != nil { // for the adapters' default chain of credentials
			return nil, err
		}
	}
	a.url, a.createTable = s.LogURL(), true
	script += "export VARVE_LOG=" + quoted(a.url) + "\n"
	file := filepath.Join(folder, "env")
	if err := writePrivate(file, script); err != nil {
		return nil, err
	}
	a.note("for another shell: . %s", quoted(file))
	return func() error { return os.Remove(file) }, nil
}

// writePrivate writes a file that is new and that nobody else may read, in the place of one that a killed process left.
func writePrivate(name, content string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// quoted is a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
