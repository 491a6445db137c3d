package embedded

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio/miniotest"
)

// TestMinIO_Processes: the same with the objects on MinIO and the engine behind a socket, so that a killed producer takes neither with it.
func TestMinIO_Processes(t *testing.T) {
	server := miniotest.Start(t)
	miniotest.RootEnvironment(t, server)
	var logs atomic.Int64
	onMinIO := func(t *testing.T, point env.Point) string {
		var o dynamodb.Options
		if point == env.BeforeFence || point == env.AfterFence {
			o.Hook = dropCommits()
		}
		url := server.LogURL(miniotest.Bucket, fmt.Sprint("processes/", logs.Add(1)), "varve", miniotest.ServeTables(t, o))
		newLog(t, url)
		return url
	}
	t.Run("KilledAtEachPoint", func(t *testing.T) { killedAtEachPoint(t, onMinIO) })
	t.Run("KilledBeforeDelete", func(t *testing.T) { killedBeforeDelete(t, onMinIO(t, "")) })
	t.Run("ProcessesOnOneLog", func(t *testing.T) { processesOnOneLog(t, onMinIO(t, "")) })
}
