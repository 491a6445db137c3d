package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store/dir"
)

// What a log's directory holds.
const (
	objectsFolder = "objects"
	tableFile     = "table.sqlite"
)

const validFile = "file:///DIR for an absolute path, file://./DIR or file://../DIR for one relative to the working directory"

// directory is the path that a file:// URL names.
func directory(u *url.URL) (string, error) {
	if u.RawQuery != "" {
		return "", &sdk.FieldError{Field: "parameters of the log URL", Value: u.RawQuery, Valid: "none with file://"}
	}
	if u.Host != "" && u.Host != "." && u.Host != ".." {
		return "", &sdk.FieldError{Field: "log URL with a host", Value: u.String(), Valid: validFile}
	}
	path := filepath.Clean(filepath.FromSlash(u.Host + u.Path))
	if u.Path == "" || path == filepath.Clean(u.Host+"/") {
		return "", &sdk.FieldError{Field: "log URL without a directory", Value: u.String(), Valid: validFile}
	}
	return path, nil
}

// ObjectsFolder is the folder with the objects of the log that a file:// URL names. Nothing is opened.
func ObjectsFolder(rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || !strings.EqualFold(u.Scheme, "file") {
		return "", &sdk.FieldError{Field: "log URL", Value: rawURL, Valid: validFile}
	}
	path, err := directory(u)
	return filepath.Join(path, objectsFolder), err
}

// prepare makes the directory if a log may be created, and otherwise makes sure that one is there: its table's file is.
func prepare(path string, create bool) error {
	if create {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return fmt.Errorf("make the log's directory: %w", err)
		}
		return nil
	}
	_, err := os.Stat(filepath.Join(path, tableFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s in that directory; if the name is right, open with WithCreateTable (varve: --create-table) to create one", sdk.ErrNoLog, tableFile)
	}
	return err
}

// openDirectory opens the log in the directory, or creates it if it may. engineOptions.File is set here.
func openDirectory(ctx context.Context, path string, engineOptions dynamodb.Options, o sdk.DriverOptions) (sdk.Backend, error) {
	if err := prepare(path, o.CreateTable); err != nil {
		return sdk.Backend{}, err
	}
	objects, err := dir.Open(filepath.Join(path, objectsFolder), o.Env)
	if err != nil {
		return sdk.Backend{}, err
	}
	engineOptions.File = filepath.Join(path, tableFile)
	engine, err := dynamodb.New(engineOptions)
	if err != nil {
		return sdk.Backend{}, err
	}
	b, err := assemble(ctx, engine, objects, o)
	b.Close, b.Near = engine.Close, true
	return closing(b, err)
}
