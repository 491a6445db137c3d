// Package environment is the one place that knows what the functions are told by environment variables, so that whatever deploys them can be compared with it.
package environment

import (
	"fmt"
	"slices"

	"github.com/varvelog/varve/metadata"
)

// The names. All that is not here is AWS's.
const (
	Log        = "VARVE_LOG"         // URL of the log: aws://BUCKET/PREFIX?table=TABLE&region=REGION
	ProduceURL = "VARVE_PRODUCE_URL" // of the produce function, which fetch tells clients

	Topic          = "VARVE_TOPIC"           // to which ingest appends
	TopicAttribute = "VARVE_TOPIC_ATTRIBUTE" // message attribute that names another topic than that
	KeyAttribute   = "VARVE_KEY_ATTRIBUTE"   // message attribute that is the record's key

	Group           = "VARVE_GROUP"             // as which forward reads
	Topics          = "VARVE_TOPICS"            // that forward reads, with commas between
	QueueURL        = "VARVE_QUEUE_URL"         // of the SQS queue to which forward sends
	DeadLetterTopic = "VARVE_DEAD_LETTER_TOPIC" // for what forward cannot send
)

// Variable is a variable as a function has it.
type Variable struct {
	Name     string
	Required bool
}

// Of has each function's variables by the function's name, which is that of its folder.
var Of = map[string][]Variable{
	"produce": {{Log, true}},
	"fetch":   {{Log, true}, {ProduceURL, false}},
	"ingest":  {{Log, true}, {Topic, false}, {TopicAttribute, false}, {KeyAttribute, false}},
	"forward": {{Log, true}, {Group, true}, {Topics, true}, {QueueURL, true}, {DeadLetterTopic, false}},
	"compact": {{Log, true}},
	"retain":  {{Log, true}},
	"sweep":   {{Log, true}},
	"monitor": {{Log, true}},
}

// Values are what a function was told, by name. What was not said is empty.
type Values map[string]string

// Read reads a function's variables by lookup, which is os.LookupEnv. A required one that is missing or empty is a *metadata.FieldError.
func Read(function string, lookup func(string) (string, bool)) (Values, error) {
	variables, ok := Of[function]
	if !ok {
		return nil, fmt.Errorf("no function %q", function)
	}
	values := Values{}
	for _, v := range variables {
		value, _ := lookup(v.Name)
		if value == "" && v.Required {
			return nil, &metadata.FieldError{Field: "environment variable " + v.Name, Value: "", Valid: "it set: function " + function + " needs " + names(variables)}
		}
		values[v.Name] = value
	}
	return values, nil
}

func names(variables []Variable) (s string) {
	for _, v := range slices.DeleteFunc(slices.Clone(variables), func(v Variable) bool { return !v.Required }) {
		if s != "" {
			s += ", "
		}
		s += v.Name
	}
	return s
}
