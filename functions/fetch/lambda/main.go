// Command lambda serves fetch behind a function URL. VARVE_LOG is the log's URL, VARVE_PRODUCE_URL where clients find the function that produces, if anywhere.
package main

import (
	"context"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/varvelog/varve/functions/fetch"
	"github.com/varvelog/varve/sdk"
)

func main() {
	varve, err := sdk.Open(context.Background(), os.Getenv("VARVE_LOG"))
	if err != nil {
		log.Fatalf("VARVE_LOG: %v", err)
	}
	service := fetch.New(varve, fetch.Options{ProduceURL: os.Getenv("VARVE_PRODUCE_URL"), Tell: func(e fetch.Event) {
		if e.Status >= 500 {
			log.Printf("%s %s: %d: %v", e.Method, e.Route, e.Status, e.Err)
		}
	}})
	lambdaurl.Start(service.Handler())
}
