package main

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// serveDynamoDB runs "varve dynamodb" and returns the address that it prints, and how to stop it.
func serveDynamoDB(t *testing.T, args ...string) (address string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a, _, errs := newApp("", "")
	r, w := io.Pipe()
	a.out = w
	code := make(chan int)
	go func() {
		c := a.run(ctx, append([]string{"dynamodb"}, args...))
		w.Close()
		code <- c
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	return strings.TrimSpace(line), func() int {
		cancel()
		return <-code
	}
}

func TestDynamoDB(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tables.sqlite")
	for run := range 2 {
		address, stop := serveDynamoDB(t, "--listen", ":0", "--file", file)
		if !strings.HasPrefix(address, "http://127.0.0.1:") {
			t.Fatalf("listens at %s", address)
		}
		client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: &address, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "x", SecretAccessKey: "x"}, nil
		})})
		if run == 0 {
			_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{TableName: aws.String("table"), BillingMode: types.BillingModePayPerRequest,
				AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS}},
				KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("k"), KeyType: types.KeyTypeHash}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		out, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{})
		if err != nil || len(out.TableNames) != 1 {
			t.Errorf("run %d: %v, %v", run, out, err)
		}
		if code := stop(); code != exitDone {
			t.Errorf("exit %d after an interrupt", code)
		}
		if _, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{}, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }); err == nil {
			t.Error("it still answers")
		}
	}
}

func TestDynamoDBAddressInUse(t *testing.T) {
	address, stop := serveDynamoDB(t, "--listen", "127.0.0.1:0")
	defer stop()
	if _, errs, code := varve(t, "", "", "dynamodb", "--listen", strings.TrimPrefix(address, "http://")); code != exitFailed || !strings.Contains(errs, "in use") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
