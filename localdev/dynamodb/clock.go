package dynamodb

import "time"

// systemNow is the only place where the engine reads the machine's clock.
func systemNow() time.Time { return time.Now() }
