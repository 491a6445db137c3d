package dynamodb

import "sync"

// writeUnits is what a write costs: one for each KB of the larger of the item before and after, at least 1.
func writeUnits(size int) float64 { return units(size, 1<<10) }

// readUnits is what reading size bytes costs: one for 4 KB, half if the read may be stale, at least for 4 KB.
func readUnits(size int, consistent bool) float64 {
	u := units(size, 4<<10)
	if !consistent {
		u /= 2
	}
	return u
}

func units(size, unit int) float64 { return float64(max(1, (size+unit-1)/unit)) }

// transactional is how many times its price an action costs in a transaction: it is prepared, then committed.
const transactional = 2

// Capacity is what calls were billed, refused and failed ones included.
type Capacity struct{ ReadUnits, WriteUnits float64 }

type meter struct {
	mu    sync.Mutex
	total Capacity
}

func (m *meter) read(units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.ReadUnits += units
}

func (m *meter) wrote(units float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.WriteUnits += units
}

// Consumed is the capacity billed since New.
func (e *Engine) Consumed() Capacity {
	e.meter.mu.Lock()
	defer e.meter.mu.Unlock()
	return e.meter.total
}

// consumption is the capacity of one answer by table, in the order of their first mention.
type consumption struct {
	tables []string
	units  map[string]float64
}

func (c *consumption) add(table string, units float64) {
	if c.units == nil {
		c.units = map[string]float64{}
	}
	if _, ok := c.units[table]; !ok {
		c.tables = append(c.tables, table)
	}
	c.units[table] += units
}

func checkReturnCapacity(q *request) error {
	return checkEnum(q.returnCapacity, "returnConsumedCapacity", "INDEXES", "TOTAL", "NONE")
}

// capacityJSON is one table's ConsumedCapacity.
func capacityJSON(table string, units float64, detail string) []byte {
	var o object
	o.text("TableName", table)
	o.number("CapacityUnits", units)
	if detail == "INDEXES" {
		var t object
		t.number("CapacityUnits", units)
		o.raw("Table", t.close())
	}
	return o.close()
}

// capacity adds the capacity of a single table's answer if q asks for it.
func (o *object) capacity(q *request, units float64) {
	if q.returnCapacity == "TOTAL" || q.returnCapacity == "INDEXES" {
		o.raw("ConsumedCapacity", capacityJSON(q.table, units, q.returnCapacity))
	}
}

// capacities adds those of a batch or transaction.
func (o *object) capacities(q *request, c consumption) {
	if q.returnCapacity != "TOTAL" && q.returnCapacity != "INDEXES" {
		return
	}
	list := []byte{'['}
	for i, table := range c.tables {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, capacityJSON(table, c.units[table], q.returnCapacity)...)
	}
	o.raw("ConsumedCapacity", append(list, ']'))
}
