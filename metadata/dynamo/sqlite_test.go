package dynamo_test

import (
	"path/filepath"
	"testing"

	engine "github.com/varvelog/varve/localdev/dynamodb"
)

func TestSuiteInSQLite(t *testing.T) {
	runSuite(t, onEngine(t, engine.Options{File: filepath.Join(t.TempDir(), "tables.db")}))
}
