package judge

import "regexp"

// meanings are what validation messages say, whatever their words. The first one that fits is it.
var meanings = []struct {
	meaning string
	words   *regexp.Regexp
}{
	{"overlapping paths", words(`Two document paths overlap`)},
	{"conflicting paths", words(`Two document paths conflict`)},
	{"syntax", words(`Syntax error; (token|Expected)|Expected number in brackets|Expected attribute name|Bad Filter Expression: (Unexpected|Invalid|Bad|Cannot parse|Unmatched|Incomplete)`)},
	{"expression too long", words(`Expression size has exceeded`)},
	{"too many operators", words(`contains too many operators`)},
	{"reserved word", words(`reserved keyword`)},
	{"unknown function", words(`Invalid function name`)},
	{"misused function", words(`function is not allowed to be used this way`)},
	{"operand count", words(`Incorrect number of operands|Wrong number of arguments`)},
	{"too many in IN", words(`IN operator is provided with too many operands`)},
	{"operand type", words(`Incorrect operand type for operator or function`)},
	{"path required", words(`requires a document path|Wrong type for argument`)},
	{"same operand", words(`first operand must be distinct`)},
	{"bounds of BETWEEN", words(`The BETWEEN operator requires`)},
	{"name of a type", words(`Invalid attribute type name`)},
	{"section twice", words(`section can only be used once`)},
	{"redundant parentheses", words(`redundant parentheses`)},
	{"undefined name", words(`expression attribute name used in the document path is not defined`)},
	{"undefined value", words(`attribute value used in expression is not defined`)},
	{"unused name", words(`ExpressionAttributeNames unused`)},
	{"unused value", words(`ExpressionAttributeValues unused`)},
	{"names without expression", words(`ExpressionAttributeNames can only be specified when using expressions`)},
	{"values without expression", words(`ExpressionAttributeValues can only be specified when using expressions`)},
	{"key of a name", words(`ExpressionAttributeNames contains invalid key`)},
	{"key of a value", words(`ExpressionAttributeValues contains invalid key`)},
	{"key updated", words(`Cannot update attribute`)},
	{"path not in the item", words(`document path provided in the update expression is invalid`)},
	{"operand not in the item", words(`refers to an attribute that does not exist`)},
	{"operand's type in the item", words(`operand in the update expression has an incorrect data type`)},
	{"start key", words(`provided starting key|Exclusive Start Key|ExclusiveStartKey`)},
	{"key schema", words(`provided key element does not match the schema|number of conditions on the keys is invalid`)},
	{"key missing", words(`Missing the key`)},
	{"type of a key", words(`Type mismatch for key`)},
	{"empty key", words(`for a key attribute cannot contain an empty|may not contain an empty string. Key`)},
	{"partition key too long", words(`Size of hashkey has exceeded`)},
	{"sort key too long", words(`size of all range keys has exceeded`)},
	{"item too large", words(`Item size has exceeded`)},
	{"updated item too large", words(`Item size to update has exceeded`)},
	{"nesting", words(`[Nn]esting [Ll]evels`)},
	{"not a number", words(`cannot be converted to a numeric`)},
	{"number overflow", words(`larger than supported range`)},
	{"number underflow", words(`smaller than supported range`)},
	{"number precision", words(`more than 38 significant digits`)},
	{"empty set", words(`set  ?may not be empty|[Bb]inary sets should not be empty`)},
	{"empty member", words(`set may not have a empty string|sets may not contain null or empty`)},
	{"duplicates in a set", words(`[Cc]ollection .*contains duplicates`)},
	{"duplicate keys", words(`item keys contains duplicates`)},
	{"too many items", words(`Too many items requested`)},
	{"one item twice", words(`multiple operations on one item`)},
	{"return values", words(`[Rr]eturn values set to invalid|ReturnValues can only be`)},
	{"select", words(`when choosing to get|ALL_PROJECTED_ATTRIBUTES can be used only`)},
	{"segments", words(`Segment parameter|TotalSegments parameter|Segment: `)},
	{"key condition misses the key", words(`Query condition missed key schema element`)},
	{"key condition", words(`Query key condition not supported|Invalid operator used in KeyConditionExpression|Unexpected (token|operator) in KeyConditionExpression|only contain one condition per key`)},
	{"type in a key condition", words(`parameter type does not match schema type`)},
	{"filter on the key", words(`only contain non-primary key attributes`)},
	{"attribute definitions", words(`Number of attributes in KeySchema|Some AttributeDefinitions are not used`)},
	{"throughput", words(`ReadCapacityUnits|ProvisionedThroughput cannot be specified`)},
	{"time to live", words(`TimeToLive is (already|active)`)},
	{"protected table", words(`protected against deletion|DeletionProtectionEnabled`)},
	{"too many actions", words(`transactItems.*length less than or equal to 100`)},
	{"unsaid", words(`^Validation Exception$`)},
	{"constraint", words(`validation errors? detected|failed to satisfy constraint|Invalid TableName|TableName must be`)},
}

func words(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

func meaningOf(message string) string {
	for _, m := range meanings {
		if m.words.MatchString(message) {
			return m.meaning
		}
	}
	return "?"
}
