package dynamodb

import (
	"strconv"

	"github.com/varvelog/varve/localdev/dynamodb/value"
	"github.com/varvelog/varve/localdev/dynamodb/wire"
)

// object is a JSON object under construction. The zero object is empty.
type object struct{ b []byte }

func (o *object) name(name string) {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(wire.AppendString(o.b, name), ':')
}

func (o *object) raw(name string, json []byte) {
	o.name(name)
	o.b = append(o.b, json...)
}

func (o *object) text(name, s string) {
	o.name(name)
	o.b = wire.AppendString(o.b, s)
}

func (o *object) number(name string, f float64) {
	o.name(name)
	o.b = strconv.AppendFloat(o.b, f, 'f', -1, 64)
}

func (o *object) item(name string, m value.Map) {
	o.name(name)
	o.b = value.AppendMap(o.b, m)
}

func (o *object) items(name string, items []value.Map) {
	o.name(name)
	o.b = append(o.b, '[')
	for i, m := range items {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = value.AppendMap(o.b, m)
	}
	o.b = append(o.b, ']')
}

// close ends the object and is its JSON.
func (o *object) close() []byte {
	if len(o.b) == 0 {
		o.b = append(o.b, '{')
	}
	o.b = append(o.b, '}')
	return o.b
}
