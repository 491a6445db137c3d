package dynamodb_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/varvelog/varve/localdev/dynamodb"
)

// BenchmarkCommit is one commit to a head of 4 KB as varve makes it: 14 slots, ALL_NEW, the old entry trimmed. It
// measures the engine alone, without the SDK.
func BenchmarkCommit(b *testing.B) {
	for _, kind := range []string{"memory", "sqlite"} {
		b.Run(kind, func(b *testing.B) {
			o := dynamodb.Options{}
			if kind == "sqlite" {
				o.File = b.TempDir() + "/engine.db"
			}
			engine, err := dynamodb.New(o)
			if err != nil {
				b.Fatal(err)
			}
			defer engine.Close()
			send := func(op, body string) {
				r, _ := http.NewRequest(http.MethodPost, "http://localhost/", strings.NewReader(body))
				r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
				response, err := engine.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				if response.StatusCode != http.StatusOK {
					content, _ := io.ReadAll(response.Body)
					b.Fatalf("%s", content)
				}
			}
			send("CreateTable", `{"TableName":"tbl","BillingMode":"PAY_PER_REQUEST","AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}`)
			var head bytes.Buffer
			head.WriteString(`{"TableName":"tbl","Item":{"pk":{"S":"L#1"},"g":{"N":"1000000"},"pad":{"B":"` + strings.Repeat("AAAA", 1100) + `"}`)
			for i := range 64 {
				fmt.Fprintf(&head, `,"p%d":{"N":"1234567"}`, i)
			}
			head.WriteString("}}")
			send("PutItem", head.String())
			var adds []string
			for i := range 14 {
				adds = append(adds, fmt.Sprintf("p%d :n", i))
			}
			update := "SET #e=:e, #o=g, g=g+:one REMOVE #x, #y ADD " + strings.Join(adds, ", ")
			entry := strings.Repeat("AAAA", 37)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				send("UpdateItem", fmt.Sprintf(`{"TableName":"tbl","Key":{"pk":{"S":"L#1"}},"UpdateExpression":%q,"ConditionExpression":"attribute_not_exists(#e) AND g < :cap","ReturnValues":"ALL_NEW",
"ExpressionAttributeNames":{"#e":"e%020d","#o":"o%020d","#x":"e%020d","#y":"o%020d"},"ExpressionAttributeValues":{":e":{"B":%q},":one":{"N":"1"},":n":{"N":"7"},":cap":{"N":"9999999999"}}}`, update, i, i, i-1, i-1, entry))
			}
		})
	}
}
