// Package price has what the services charge, in one place. The figures are list prices of us-east-1, November 2026: S3 Standard from
// aws.amazon.com/s3/pricing, DynamoDB on demand from aws.amazon.com/dynamodb/pricing/on-demand, Lambda on arm64 from aws.amazon.com/lambda/pricing. Region,
// contract and free tier change them.
package price

// Date is when the table was looked up, Region what it is for.
const (
	Date   = "2026-11"
	Region = "us-east-1"
)

// In US dollars.
const (
	StorePut      = 0.005 / 1e3  // PUT and LIST, each
	StoreGet      = 0.0004 / 1e3 // GET and HEAD, each
	StoreGiBMonth = 0.023        // of objects
	WriteUnit     = 0.625 / 1e6  // DynamoDB write request unit
	ReadUnit      = 0.125 / 1e6  // DynamoDB read request unit
	TableGiBMonth = 0.25         // of items
	Invocation    = 0.2 / 1e6    // of a function
	FunctionGBs   = 0.0000133334 // a function's second with a GB of memory
)

// Usage is what was used. DELETE is free.
type Usage struct {
	Puts, Gets            int     // requests to the store
	ReadUnits, WriteUnits float64 // of the table
}

// Dollars is what the usage costs.
func (u Usage) Dollars() float64 {
	return float64(u.Puts)*StorePut + float64(u.Gets)*StoreGet + u.ReadUnits*ReadUnit + u.WriteUnits*WriteUnit
}
