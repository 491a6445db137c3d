// Command lambda serves produce behind a function URL.
package main

import (
	"context"
	"log"

	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/varvelog/varve/functions/internal/function"
	"github.com/varvelog/varve/functions/produce"
)

func main() {
	f := function.Start("produce")
	varve, err := f.Log(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	service := produce.New(varve, produce.Options{Tell: func(e produce.Event) {
		if e.Status >= 500 {
			log.Printf("%s %s: %d: %v", e.Method, e.Route, e.Status, e.Err)
		}
		f.Count(varve)
	}})
	lambdaurl.Start(service.Handler())
}
