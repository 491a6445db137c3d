package environment_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/metadata"
)

func TestRead(t *testing.T) {
	set := map[string]string{environment.Log: "aws://b/p?table=t", environment.Group: "g", environment.Topics: "a,b", environment.QueueURL: "https://q"}
	lookup := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	v, err := environment.Read("forward", lookup)
	if err != nil || v[environment.Group] != "g" || v[environment.DeadLetterTopic] != "" || len(v) != 5 {
		t.Fatal(v, err)
	}
	set[environment.QueueURL] = ""
	var field *metadata.FieldError
	if _, err := environment.Read("forward", lookup); !errors.As(err, &field) || !strings.Contains(field.Field, environment.QueueURL) {
		t.Errorf("an empty required variable: %v", err)
	}
	if _, err := environment.Read("nothing", lookup); err == nil {
		t.Error("a function that there is not was read")
	}
}

// Every function with a main has its variables here, and no others: a main that reads a variable of its own would be missed by what compares deployments.
func TestEveryMain(t *testing.T) {
	mains, err := filepath.Glob("../*/lambda/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatal(mains, err)
	}
	for _, path := range mains {
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		if environment.Of[name] == nil {
			t.Errorf("%s has no variables in environment.Of", path)
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), "\n"); n > 40 {
			t.Errorf("%s has %d lines, 40 are allowed", path, n)
		}
		if strings.Contains(string(source), `"VARVE_`) || strings.Contains(string(source), "os.Getenv") {
			t.Errorf("%s reads its environment itself", path)
		}
	}
}
