// Lambda sweep deletes what nothing names any more, once for each event of its schedule. It alone has the right to delete.
package main

import (
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/varvelog/varve/functions/internal/function"
	"github.com/varvelog/varve/functions/schedule"
)

func main() { lambda.Start(function.Start("sweep").Job(schedule.Sweep)) }
