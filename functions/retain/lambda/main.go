// Lambda retain moves log starts and keeps the bucket's lifecycle rules, once for each event of its schedule.
package main

import (
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/varvelog/varve/functions/internal/function"
	"github.com/varvelog/varve/functions/schedule"
)

func main() { lambda.Start(function.Start("retain").Job(schedule.Retain)) }
