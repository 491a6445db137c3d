// Package sdk is what users import. Open a log by URL, then produce, read and administer its topics:
//
//	log, err := sdk.Open(ctx, "aws://my-bucket/prod?table=varve&region=eu-central-1")
//	producer, err := log.NewProducer()
//	err = producer.ProduceSync(ctx, &sdk.Record{Topic: "orders", Key: key, Value: value}).Err()
//
// There is no server of varve's: this package writes segments to the bucket and sequences them in the table.
// Everything exported is safe for concurrent use unless its comment says otherwise.
package sdk
