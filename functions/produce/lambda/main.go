// Command lambda serves produce behind a function URL. VARVE_LOG is the log's URL.
package main

import (
	"context"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/varvelog/varve/functions/produce"
	"github.com/varvelog/varve/sdk"
)

func main() {
	varve, err := sdk.Open(context.Background(), os.Getenv("VARVE_LOG"))
	if err != nil {
		log.Fatalf("VARVE_LOG: %v", err)
	}
	service := produce.New(varve, produce.Options{Tell: func(e produce.Event) {
		if e.Status >= 500 {
			log.Printf("%s %s: %d: %v", e.Method, e.Route, e.Status, e.Err)
		}
	}})
	lambdaurl.Start(service.Handler())
}
