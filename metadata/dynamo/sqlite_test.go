package dynamo_test

import (
	"path/filepath"
	"testing"

	engine "github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/metadata/dynamo"
	"github.com/varvelog/varve/metadata/metatest"
)

func TestSuiteInSQLite(t *testing.T) {
	metatest.Run(t, func(t *testing.T, onCall func(metadata.Call)) metadata.Table {
		file := filepath.Join(t.TempDir(), "table.db")
		return fresh(t, dynamo.Config{AWS: onEngine(t, engine.Options{File: file}), OnCall: onCall})
	})
}
