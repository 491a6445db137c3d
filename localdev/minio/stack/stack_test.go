package stack

import (
	"net"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
)

// HTTP clients make connections ahead, which nothing has come over when the table is closed: that is no failure.
func TestCloseWithAConnectionThatWasNotUsed(t *testing.T) {
	t.Parallel()
	tables, err := serveTables(env.System(), dynamodb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(tables.endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := tables.close(); err != nil {
		t.Error(err)
	}
}
