//go:build !cgo

package main

const dynamic = false
