// Package limits is tests of how large a log may get, and that nothing in a process grows with what it does not use: topics, partitions, groups, idle members,
// and a rate. They play small sizes; -full plays those that docs/reliability.md names ("make limits").
package limits
