// Lambda compact compacts the log, objects and keys, once for each event of its schedule. It ends in time: what is left the next run does.
package main

import (
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/varvelog/varve/functions/internal/function"
	"github.com/varvelog/varve/functions/schedule"
)

func main() { lambda.Start(function.Start("compact").Job(schedule.Compact)) }
