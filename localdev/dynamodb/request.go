package dynamodb

import (
	"github.com/varvelog/varve/localdev/dynamodb/value"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// request is the union of what the item operations may ask. An action of a batch or transaction is a request of its
// own. nil and empty are apart where the service tells them apart.
type request struct {
	table string
	item  value.Map // of a put
	key   value.Map
	keys  []value.Map // of one table of BatchGetItem

	condition    *string
	filter       *string
	keyCondition *string
	update       *string
	projection   *string
	names        map[string]string
	values       value.Map

	consistent      bool
	returnValues    string
	returnOnFailure string
	returnCapacity  string

	limit         *int64
	startKey      value.Map
	descending    bool
	selection     string
	segment       *int64
	totalSegments *int64
	index         *string

	token   string
	actions []action // of a batch or transaction, in the order of the request

	old []string // parameters from before expressions
}

// action is one part of a batch or transaction. verb is the member's name: Put, Update, Delete, ConditionCheck or
// Get in a transaction; PutRequest, DeleteRequest or, for one table's keys, Keys in a batch.
type action struct {
	verb string
	*request
}

type field func(q *request, r *wire.Reader) error

// fields are the members of a request by their names in JSON. It is filled by init because requests nest.
var fields map[string]field

func init() {
	fields = map[string]field{
		"TableName":                           text(func(q *request) *string { return &q.table }),
		"Item":                                item(func(q *request) *value.Map { return &q.item }),
		"Key":                                 item(func(q *request) *value.Map { return &q.key }),
		"Keys":                                readKeys,
		"ConditionExpression":                 optionalText(func(q *request) **string { return &q.condition }),
		"FilterExpression":                    optionalText(func(q *request) **string { return &q.filter }),
		"KeyConditionExpression":              optionalText(func(q *request) **string { return &q.keyCondition }),
		"UpdateExpression":                    optionalText(func(q *request) **string { return &q.update }),
		"ProjectionExpression":                optionalText(func(q *request) **string { return &q.projection }),
		"ExpressionAttributeNames":            readNames,
		"ExpressionAttributeValues":           readValues,
		"ConsistentRead":                      readConsistent,
		"ReturnValues":                        text(func(q *request) *string { return &q.returnValues }),
		"ReturnValuesOnConditionCheckFailure": text(func(q *request) *string { return &q.returnOnFailure }),
		"ReturnConsumedCapacity":              text(func(q *request) *string { return &q.returnCapacity }),
		"Limit":                               optionalInt(func(q *request) **int64 { return &q.limit }),
		"ExclusiveStartKey":                   item(func(q *request) *value.Map { return &q.startKey }),
		"ScanIndexForward":                    readForward,
		"Select":                              text(func(q *request) *string { return &q.selection }),
		"Segment":                             optionalInt(func(q *request) **int64 { return &q.segment }),
		"TotalSegments":                       optionalInt(func(q *request) **int64 { return &q.totalSegments }),
		"IndexName":                           optionalText(func(q *request) **string { return &q.index }),
		"ClientRequestToken":                  text(func(q *request) *string { return &q.token }),
		"RequestItems":                        readRequestItems,
		"TransactItems":                       readTransactItems,
	}
	for _, name := range []string{"AttributesToGet", "AttributeUpdates", "Expected", "ConditionalOperator", "KeyConditions", "QueryFilter", "ScanFilter"} {
		fields[name] = func(q *request, r *wire.Reader) error {
			q.old = append(q.old, name)
			return r.Skip()
		}
	}
}

// decode reads a whole request. Members that it does not know are skipped, as the service does.
func decode(body []byte) (*request, error) {
	r := wire.NewReader(body)
	q, err := readRequest(r)
	if err != nil {
		return nil, err
	}
	return q, r.End()
}

func readRequest(r *wire.Reader) (*request, error) {
	q := &request{}
	return q, r.Object(func(name string) error {
		read, known := fields[name]
		if !known {
			return r.Skip()
		}
		if r.Null() {
			return nil
		}
		return read(q, r)
	})
}

func text(place func(*request) *string) field {
	return func(q *request, r *wire.Reader) (err error) {
		*place(q), err = r.String()
		return err
	}
}

func optionalText(place func(*request) **string) field {
	return func(q *request, r *wire.Reader) error {
		s, err := r.String()
		*place(q) = &s
		return err
	}
}

func optionalInt(place func(*request) **int64) field {
	return func(q *request, r *wire.Reader) error {
		i, err := r.Int()
		*place(q) = &i
		return err
	}
}

func item(place func(*request) *value.Map) field {
	return func(q *request, r *wire.Reader) (err error) {
		*place(q), err = value.ReadMap(r)
		return err
	}
}

func readConsistent(q *request, r *wire.Reader) (err error) {
	q.consistent, err = r.Bool()
	return err
}

func readForward(q *request, r *wire.Reader) error {
	forward, err := r.Bool()
	q.descending = !forward
	return err
}

func readNames(q *request, r *wire.Reader) error {
	q.names = map[string]string{}
	return r.Object(func(name string) (err error) {
		q.names[name], err = r.String()
		return err
	})
}

func readValues(q *request, r *wire.Reader) error {
	q.values = value.Map{}
	return r.Object(func(name string) error {
		v, err := value.Read(r)
		if invalid, ok := err.(value.Invalid); ok {
			return validation("ExpressionAttributeValues contains invalid value: %s for key %s", invalid, name)
		}
		q.values[name] = v
		return err
	})
}

func readKeys(q *request, r *wire.Reader) error {
	q.keys = []value.Map{}
	return r.Array(func() error {
		key, err := value.ReadMap(r)
		q.keys = append(q.keys, key)
		return err
	})
}

// readRequestItems reads both batches: for each table an object with Keys, or a list of puts and deletes.
func readRequestItems(q *request, r *wire.Reader) error {
	return r.Object(func(table string) error {
		if !r.AtArray() {
			get, err := readRequest(r)
			get.table = table
			q.actions = append(q.actions, action{"Keys", get})
			return err
		}
		return r.Array(func() error { return readAction(q, r, table) })
	})
}

func readTransactItems(q *request, r *wire.Reader) error {
	return r.Array(func() error { return readAction(q, r, "") })
}

// readAction reads an object with one member, the name of which says what is to be done.
func readAction(q *request, r *wire.Reader, table string) error {
	members := 0
	err := r.Object(func(verb string) error {
		if r.Null() {
			return nil
		}
		members++
		part, err := readRequest(r)
		if table != "" {
			part.table = table
		}
		q.actions = append(q.actions, action{verb, part})
		return err
	})
	if err == nil && members != 1 {
		return validation("Supplied AttributeValue has %d of the supported actions set, must contain exactly one", members)
	}
	return err
}
