// Package lint holds the tests that read varve's own source: which package may import which, and who may
// read the machine's clock or chance. They parse the files themselves, so a cached result cannot hide a change.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/varvelog/varve"

// forbidden lists, for a package and those below it, the import prefixes that it may not have. A later,
// longer entry adds to a shorter one. Tests are free.
var forbidden = map[string][]string{
	"segment":           {"net", "os", "time/tzdata", "github.com/aws", "github.com/minio", module + "/internal/env", module + "/metadata", module + "/sdk", module + "/localdev", module + "/cmd"},
	"segment/store":     {module + "/metadata", module + "/sdk", module + "/localdev", module + "/cmd"},
	"metadata":          {module + "/segment/store", module + "/sdk", module + "/localdev", module + "/cmd", "github.com/minio"},
	"sdk":               {module + "/functions", module + "/localdev", module + "/cmd", "go.opentelemetry.io"},
	"localdev/dynamodb": {module},
	"functions":         {module + "/segment/store/s3", module + "/segment/store/dir", module + "/metadata/dynamo", module + "/localdev"},
	"internal/env":      {module},
}

// allowed takes single imports back out of forbidden: package -> import.
var allowed = map[string][]string{
	"segment/store": {"net", "os", "github.com/aws", "github.com/minio", module + "/internal/env"},
	"sdk/otel":      {"go.opentelemetry.io"},
	// what makes a log for the tests of functions
	"functions/internal/archivetest": {module + "/metadata/dynamo", module + "/localdev/dynamodb"},
	// an engine of several packages may import itself
	"localdev/dynamodb": {module + "/localdev/dynamodb"},
}

// mayReadClock are the files that are the seam to the machine's clock and chance.
var mayReadClock = []string{"internal/env/", "localdev/dynamodb/clock.go"}

var clockAndChance = map[string]string{
	"time.Now": "", "time.Since": "", "time.Until": "", "time.Sleep": "", "time.After": "", "time.AfterFunc": "", "time.Tick": "", "time.NewTicker": "", "time.NewTimer": "",
	"context.WithTimeout": "", "context.WithDeadline": "", "context.WithTimeoutCause": "", "context.WithDeadlineCause": "",
}

func TestImportsAndClock(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		for _, problem := range check(t, path, filepath.ToSlash(rel)) {
			t.Error(problem)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Fatalf("only %d files read: is the root %s right?", files, root)
	}
}

func check(t *testing.T, path, rel string) (problems []string) {
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, 0)
	if err != nil {
		return []string{err.Error()}
	}
	pkg := filepath.ToSlash(filepath.Dir(rel))
	clock := true
	for _, prefix := range mayReadClock {
		clock = clock && !strings.HasPrefix(rel, prefix)
	}
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		if reason := refused(pkg, name); reason != "" {
			problems = append(problems, fmt.Sprintf("%s imports %s: %s", rel, name, reason))
		}
		if clock && (name == "math/rand" || name == "math/rand/v2" || name == "crypto/rand") {
			problems = append(problems, fmt.Sprintf("%s imports %s: chance comes from internal/env", rel, name))
		}
	}
	if clock {
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Obj == nil {
					if _, bad := clockAndChance[x.Name+"."+sel.Sel.Name]; bad {
						problems = append(problems, fmt.Sprintf("%s: %s.%s: time comes from internal/env", fset.Position(n.Pos()), x.Name, sel.Sel.Name))
					}
				}
			}
			return true
		})
	}
	return problems
}

func under(pkg, parent string) bool { return pkg == parent || strings.HasPrefix(pkg, parent+"/") }

func refused(pkg, name string) string {
	for parent, prefixes := range forbidden {
		if !under(pkg, parent) {
			continue
		}
		for _, prefix := range prefixes {
			if under(name, prefix) && !permitted(pkg, name) {
				return fmt.Sprintf("packages under %s may not import %s", parent, prefix)
			}
		}
	}
	return ""
}

func permitted(pkg, name string) bool {
	for parent, prefixes := range allowed {
		if under(pkg, parent) {
			for _, prefix := range prefixes {
				if under(name, prefix) {
					return true
				}
			}
		}
	}
	return false
}

func TestRefusesWhatItShould(t *testing.T) {
	for _, c := range []struct {
		pkg, name string
		want      bool
	}{
		{"segment", "net/http", true},
		{"segment", module + "/internal/env", true},
		{"segment/store/s3", "github.com/minio/minio-go/v7", false},
		{"segment/store/s3", module + "/metadata", true},
		{"metadata/dynamo", module + "/segment", false},
		{"metadata/dynamo", module + "/segment/store", true},
		{"sdk", module + "/localdev/embedded", true},
		{"sdk", "go.opentelemetry.io/otel/trace", true},
		{"sdk/otel", "go.opentelemetry.io/otel/trace", false},
		{"sdk/otel", module + "/localdev/embedded", true},
		{"localdev/dynamodb", module + "/segment", true},
		{"localdev/dynamodb/expr", module + "/localdev/dynamodb", false},
	} {
		if got := refused(c.pkg, c.name) != ""; got != c.want {
			t.Errorf("refused(%s, %s) = %v", c.pkg, c.name, got)
		}
	}
}
