package main

import (
	"fmt"
	"testing"

	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio/miniotest"
)

// TestMinIO_Again runs those tests again, each log on MinIO and on the DynamoDB engine behind a socket, that do not look at a log's files.
func TestMinIO_Again(t *testing.T) {
	server := miniotest.Start(t)
	miniotest.RootEnvironment(t, server)
	directory, n := newURL, 0
	t.Cleanup(func() { newURL = directory })
	newURL = func(t *testing.T) string {
		t.Helper()
		n++
		url := server.LogURL(miniotest.Bucket, fmt.Sprint("again/", n), "varve", miniotest.ServeTables(t, dynamodb.Options{}))
		must(t, url, "", "topic", "list", "--create-table")
		return url
	}
	for _, again := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Demo", TestDemo},
		{"DemoOnAFullDisk", TestDemoOnAFullDisk},
		{"DemoCheckOffsets", TestDemoCheckOffsets},
		{"BR05_CLI", TestBR05_CLI},
		{"BR46_NamesThroughTheCLI", TestBR46_NamesThroughTheCLI},
		{"ProduceLines", TestProduceLines},
		{"ConsumePositions", TestConsumePositions},
		{"ConsumeFollow", TestConsumeFollow},
		{"Compact", TestCompact},
		{"ConsumeInGroup", TestConsumeInGroup},
		{"ConsumeInGroupShares", TestConsumeInGroupShares},
		{"GroupWithMembers", TestGroupWithMembers},
		{"Retain", TestRetain},
	} {
		t.Run(again.name, again.run)
	}
}
