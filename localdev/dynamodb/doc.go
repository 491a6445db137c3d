// Package dynamodb is a small engine for DynamoDB's API in Go, for tests and for a log on one machine. The AWS
// SDK talks to it without a socket (aws.Config{HTTPClient: engine}) or over a port (Engine is an http.Handler).
// Items live in memory or in one SQLite file that several processes may share; a write to a file is durable when it
// is answered.
//
// It performs CreateTable, DescribeTable, ListTables, DeleteTable, UpdateTimeToLive, GetItem, PutItem, UpdateItem,
// DeleteItem, Query, Scan, BatchGetItem, BatchWriteItem, TransactWriteItems and TransactGetItems, with the whole
// expression grammar, limits, billing and error messages of the service. It refuses by name:
//
//   - every other operation (UnknownOperationException);
//   - secondary indexes, streams, and the parameters from before expressions (AttributesToGet, Expected,
//     AttributeUpdates, KeyConditions, QueryFilter, ScanFilter, ConditionalOperator), as ValidationException.
//
// Where it departs from the service:
//
//   - of a signature only its time is looked at, which must be within five minutes of the engine's; credentials are
//     not known, and a table belongs to no account;
//   - a table is ACTIVE when CreateTable answers and gone when DeleteTable answers; its counts stay 0;
//   - a time to live is stored and never acted on;
//   - eventual reads are as fresh as strong ones, unless the Hook says how stale they are to be;
//   - capacity is unlimited, unless Options.ItemWriteUnits limits it; provisioned figures are stored only;
//   - transactions conflict only with what happens in the same process; several processes on one file are
//     serialized by SQLite instead, and a file that stays locked for seconds is answered with ThrottlingException;
//   - UpdateItem measures the finished item against the limit of 400 KB as every other operation does; the service
//     is up to a few dozen bytes stricter;
//   - a page of Query or Scan ends before the item that would bring it over 1 MB;
//   - of several things that are wrong with a request, it may report another one than the service.
package dynamodb
