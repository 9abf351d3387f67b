package local

import (
	"bytes"
	"encoding/json"
	"net/netip"

	"github.com/sandboxctl/sandboxctl/plugin"
)

// settingsSchema describes drivers.local in the configuration.
const settingsSchema = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "nameservers": {
      "type": "array", "items": {"type": "string"},
      "description": "addresses, with or without a port, of the nameservers that are asked for sandboxes; this machine's own when absent"
    }
  }
}`

// settings are the user's choices, checked.
type settings struct {
	Nameservers []netip.AddrPort
}

func readSettings(content []byte) (settings, error) {
	var raw struct {
		Nameservers []string `json:"nameservers"`
	}
	if len(content) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&raw); err != nil {
			return settings{}, plugin.Errorf(plugin.KindInvalid, "cannot read drivers.local in the configuration: %w", err)
		}
	}
	var read settings
	for _, text := range raw.Nameservers {
		server, err := parseNameserver(text)
		if err != nil {
			return settings{}, plugin.Errorf(plugin.KindInvalid, "drivers.local.nameservers in the configuration: %q is not an address", text).
				WithHint("write an address such as 203.0.113.53 or [2001:db8::53]:5353")
		}
		read.Nameservers = append(read.Nameservers, server)
	}
	return read, nil
}

func parseNameserver(text string) (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(address, 53), nil
	}
	return netip.ParseAddrPort(text)
}
