package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes: "512", "64k", "1.5g", "2GiB". Units are powers of
// 1024, as docker's are.
func ParseSize(text string) (uint64, error) {
	invalid := fmt.Errorf("%q is not a size; write a number of bytes with an optional k, m, g or t, such as 512m", text)
	number := strings.ToLower(strings.TrimSpace(text))
	number = strings.TrimSuffix(strings.TrimSuffix(number, "b"), "i")
	factor := 1.0
	if number != "" {
		if power := strings.IndexByte("kmgt", number[len(number)-1]); power >= 0 {
			factor = math.Pow(1024, float64(power+1))
			number = number[:len(number)-1]
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || strings.ContainsAny(number, "xpe_+") {
		return 0, invalid
	}
	bytes := value * factor
	if bytes > 1<<53 {
		return 0, invalid
	}
	return uint64(bytes), nil
}

// FormatSize writes a number of bytes for people.
func FormatSize(bytes uint64) string {
	const units = "KMGT"
	value, unit := float64(bytes), -1
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%dB", bytes)
	}
	return fmt.Sprintf("%.1f%cB", value, units[unit])
}
