// Command lambda serves fetch behind a function URL.
package main

import (
	"context"
	"log"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/varvelog/varve/functions/environment"
	"github.com/varvelog/varve/functions/fetch"
	"github.com/varvelog/varve/functions/internal/function"
)

func main() {
	f := function.Start("fetch")
	varve, err := f.Log(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	service := fetch.New(varve, fetch.Options{ProduceURL: f.Values[environment.ProduceURL], Tell: func(e fetch.Event) {
		if e.Status >= 500 {
			log.Printf("%s %s: %d: %v", e.Method, e.Route, e.Status, e.Err)
		}
		f.Count(varve)
	}})
	lambdaurl.Start(service.Handler())
}
