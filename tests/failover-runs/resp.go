package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Owns a client's connection: one command after the other, and what their replies are. Never knows what a command means.

// A reply is a string (simple or bulk), an int64, nil, a refusal, or a list of replies.
type reply interface{}

// refusal is an error reply.
type refusal string

// How long a client waits for a reply. A proxy holds a command for 5 s at most.
const replyTimeout = 8 * time.Second

type connection struct {
	stream net.Conn
	reader *bufio.Reader
}

func dial(address string) (*connection, error) {
	stream, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return &connection{stream, bufio.NewReader(stream)}, nil
}

func (c *connection) close() {
	if c != nil {
		c.stream.Close()
	}
}

// encode is one command on the wire.
func encode(to []byte, words ...string) []byte {
	to = append(to, fmt.Sprintf("*%d\r\n", len(words))...)
	for _, word := range words {
		to = append(to, fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)...)
	}
	return to
}

// call sends commands in one piece. It returns the last reply, or the first error reply if that is none. An error: the connection is lost, and
// nobody knows what has run.
func (c *connection) call(commands ...[]string) (reply, error) {
	var sent []byte
	for _, words := range commands {
		sent = encode(sent, words...)
	}
	return c.send(sent, len(commands))
}

func (c *connection) send(bytes []byte, replies int) (last reply, err error) {
	var first reply
	if err = c.stream.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	if _, err = c.stream.Write(bytes); err != nil {
		return nil, err
	}
	for ; replies > 0; replies-- {
		if last, err = c.read(); err != nil {
			return nil, err
		}
		if _, isRefusal := last.(refusal); isRefusal && first == nil {
			first = last
		}
	}
	if _, isRefusal := last.(refusal); !isRefusal && first != nil {
		last = first
	}
	return last, nil
}

func (c *connection) read() (reply, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, errors.New("a line without a type")
	}
	kind, text := line[0], line[1:len(line)-2]
	if kind == '+' {
		return text, nil
	}
	if kind == '-' {
		return refusal(text), nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == ':':
		return number, nil
	case number < 0 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$':
		bytes := make([]byte, number+2)
		if _, err := io.ReadFull(c.reader, bytes); err != nil {
			return nil, err
		}
		return string(bytes[:number]), nil
	case kind == '*':
		list := make([]reply, number)
		for at := range list {
			if list[at], err = c.read(); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("a reply of the unknown type %q", kind)
}
