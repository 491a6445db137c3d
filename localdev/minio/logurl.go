package minio

import "net/url"

// LogURL is the URL of the log at the prefix of the bucket, with the table in the DynamoDB at that endpoint.
func (s *Server) LogURL(bucket, prefix, table, dynamodbEndpoint string) string {
	q := url.Values{"table": {table}, "region": {Region}, "s3_endpoint": {s.Endpoint()}, "dynamodb_endpoint": {dynamodbEndpoint}}
	return "aws://" + bucket + "/" + prefix + "?" + q.Encode()
}
