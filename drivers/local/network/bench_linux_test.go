package network

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandboxctl/sandboxctl/drivers/local/internal/testnet"
)

// BenchmarkThroughput measures one connection each way between the guest and a server,
// with the buffers that root and an ordinary user get.
func BenchmarkThroughput(b *testing.B) {
	for name, uid := range map[string]uint32{"root": 0, "ordinary": otherUser} {
		b.Run(name, func(b *testing.B) {
			world := testnet.New(b)
			received := make(chan int64, 1)
			world.ListenTCP("203.0.113.10:9", func(conn *net.TCPConn) {
				n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 1<<20))
				received <- n
			})
			world.ListenTCP("203.0.113.10:19", func(conn *net.TCPConn) {
				for buf := make([]byte, 1<<20); ; {
					if _, err := conn.Write(buf); err != nil {
						return
					}
				}
			})
			k, g := startKeeper(b, world, uid, open)
			b.Run("send", func(b *testing.B) {
				conn, err := g.dialTCP("203.0.113.10:9")
				must(b, err)
				buf := make([]byte, 1<<20)
				b.SetBytes(int64(len(buf)))
				for b.Loop() {
					if _, err := conn.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
				must(b, conn.CloseWrite())
				<-received
				_ = conn.Close()
			})
			b.Run("send with 8 connections", func(b *testing.B) {
				buf := make([]byte, 1<<20)
				b.SetBytes(int64(len(buf)))
				b.SetParallelism(4)
				b.RunParallel(func(pb *testing.PB) {
					conn, err := g.dialTCP("203.0.113.10:9")
					must(b, err)
					for pb.Next() {
						if _, err := conn.Write(buf); err != nil {
							b.Error(err)
						}
					}
					must(b, conn.CloseWrite())
					<-received
					_ = conn.Close()
				})
			})
			b.Run("receive", func(b *testing.B) {
				conn, err := g.dialTCP("203.0.113.10:19")
				must(b, err)
				buf := make([]byte, 1<<20)
				b.SetBytes(int64(len(buf)))
				for b.Loop() {
					if _, err := io.ReadFull(conn, buf); err != nil {
						b.Fatal(err)
					}
				}
				_ = conn.Close()
			})
			b.Logf("keeper afterwards: %s", k.report().RSS)
		})
	}
}

// BenchmarkConnect measures a connection with one byte each way.
func BenchmarkConnect(b *testing.B) {
	world := testnet.New(b)
	world.ListenTCP("203.0.113.10:80", echo)
	_, g := startKeeper(b, world, 0, open)
	began := time.Now()
	for b.Loop() {
		conn, err := g.dialTCP("203.0.113.10:80")
		must(b, err)
		_, err = conn.Write([]byte{1})
		must(b, err)
		_, err = conn.Read(make([]byte, 1))
		must(b, err)
		_ = conn.Close()
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "conn/s")
}
