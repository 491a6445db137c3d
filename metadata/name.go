package metadata

import (
	"fmt"
)

// ValidateName checks a topic, group or member name, kind being the word for messages: 1 to MaxNameBytes characters of a-z A-Z 0-9 . _ -
// (Kafka's set), and neither "." nor "..". Accepted names are used as they are, so they map one-to-one to keys.
func ValidateName(kind, name string) error {
	valid := fmt.Sprintf("1 to %d characters of a-z A-Z 0-9 . _ - other than . and ..", MaxNameBytes)
	ok := name != "" && len(name) <= MaxNameBytes && name != "." && name != ".."
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return &FieldError{Field: kind + " name", Value: name, Valid: valid}
	}
	return nil
}
