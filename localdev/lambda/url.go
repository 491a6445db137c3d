package lambda

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

// ServeHTTP is the function's URL: a request becomes an event, in the form 2.0, and what the function answers the response, streamed if it is.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequest))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", fmt.Sprintf("Request must be smaller than %d bytes", MaxRequest))
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, "InvalidRequestContentException", err.Error())
		return
	}
	if h.f.Signed != nil {
		if err := h.f.Signed.check(r, body); err != nil {
			refuse(w, http.StatusForbidden, "AccessDeniedException", "Forbidden: "+err.Error())
			return
		}
	}
	event, err := json.Marshal(h.event(r, body))
	if err != nil {
		refuse(w, http.StatusBadRequest, "InvalidRequestContentException", err.Error())
		return
	}
	answer, err := h.Start(r.Context(), event)
	if err != nil {
		refuseFor(w, err)
		return
	}
	defer answer.Body.Close()
	if kind, _, _ := mime.ParseMediaType(answer.ContentType); kind == streamed {
		stream(w, answer.Body)
		return
	}
	whole(w, answer.Body)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Amzn-Errortype", kind)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"Message": message})
}

func refuseFor(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrThrottled):
		refuse(w, http.StatusTooManyRequests, "TooManyRequestsException", "Rate Exceeded.")
	case errors.Is(err, ErrTooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "RequestTooLargeException", err.Error())
	case errors.Is(err, ErrTimeout):
		refuse(w, http.StatusGatewayTimeout, "TimeoutException", err.Error())
	default:
		refuse(w, http.StatusBadGateway, "InternalServerErrorException", err.Error())
	}
}

// event is the request as the function gets it.
func (h *Host) event(r *http.Request, body []byte) *events.LambdaFunctionURLRequest {
	e := &events.LambdaFunctionURLRequest{Version: "2.0", RawPath: r.URL.EscapedPath(), RawQueryString: r.URL.RawQuery, Headers: map[string]string{}}
	for name, values := range r.Header {
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	e.Headers["host"] = r.Host
	if cookies := r.Header.Values("Cookie"); len(cookies) > 0 {
		e.Cookies = strings.Split(strings.Join(cookies, "; "), "; ")
	}
	for name, values := range r.URL.Query() {
		if e.QueryStringParameters == nil {
			e.QueryStringParameters = map[string]string{}
		}
		e.QueryStringParameters[name] = strings.Join(values, ",")
	}
	e.Body = string(body)
	if e.IsBase64Encoded = len(body) > 0 && !(isText(r.Header.Get("Content-Type")) && utf8.Valid(body)); e.IsBase64Encoded {
		e.Body = base64.StdEncoding.EncodeToString(body)
	}
	c, now := &e.RequestContext, h.env.Now()
	c.AccountID, c.RequestID, c.APIID, c.DomainPrefix, c.DomainName = "anonymous", h.newID(), h.f.Name, h.f.Name, r.Host
	c.Time, c.TimeEpoch = now.UTC().Format("02/Jan/2006:15:04:05 -0700"), now.UnixMilli()
	c.HTTP.Method, c.HTTP.Path, c.HTTP.Protocol, c.HTTP.UserAgent = r.Method, r.URL.Path, r.Proto, r.UserAgent()
	c.HTTP.SourceIP, _, _ = net.SplitHostPort(r.RemoteAddr)
	return e
}

// isText tells whether a body of the type goes into the event as it is.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(kind, "text/") || kind == "application/json" || kind == "application/javascript" || kind == "application/xml" ||
		strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml"))
}

// streamed is the type of a response that begins with its status and headers as JSON, and eight zero bytes.
const streamed = "application/vnd.awslambda.http-integration-response"

// head is the beginning of a streamed response.
type head struct {
	StatusCode int               `json:"statusCode"`
	Headers    map[string]string `json:"headers"`
	Cookies    []string          `json:"cookies"`
}

const maxHead = 1 << 20

// readHead reads the beginning of a streamed response.
func readHead(in *bufio.Reader) (*head, error) {
	var b []byte
	for !bytes.HasSuffix(b, make([]byte, 8)) {
		c, err := in.ReadByte()
		if err != nil {
			return nil, fmt.Errorf("the response ends before its body begins: %w", err)
		}
		if b = append(b, c); len(b) > maxHead {
			return nil, fmt.Errorf("%w: the status and headers of a response", ErrTooLarge)
		}
	}
	h := &head{StatusCode: http.StatusOK}
	return h, json.Unmarshal(b[:len(b)-8], h)
}

func (h *head) write(w http.ResponseWriter) {
	for name, value := range h.Headers {
		w.Header().Set(name, value)
	}
	for _, c := range h.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	w.WriteHeader(h.StatusCode)
}

// stream passes a response on, piece by piece. One that breaks off breaks the connection.
func stream(w http.ResponseWriter, body io.Reader) {
	in := bufio.NewReader(body)
	h, err := readHead(in)
	if err == nil && (h.StatusCode < 200 || h.StatusCode > 999) {
		err = fmt.Errorf("status %d", h.StatusCode)
	}
	if err != nil {
		refuseFor(w, err)
		return
	}
	h.write(w)
	to := http.NewResponseController(w)
	to.Flush()
	piece := make([]byte, 64<<10)
	for {
		n, err := in.Read(piece)
		if n > 0 {
			if _, failed := w.Write(piece[:n]); failed != nil {
				return
			}
			to.Flush()
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// whole passes on a response that is not streamed: one in the form of functions' URLs, or anything else as it is.
func whole(w http.ResponseWriter, body io.Reader) {
	b, err := io.ReadAll(io.LimitReader(body, MaxResponse+1))
	if err == nil && len(b) > MaxResponse {
		err = fmt.Errorf("%w: a response of more than %d bytes", ErrTooLarge, MaxResponse)
	}
	if err != nil {
		refuseFor(w, err)
		return
	}
	var r events.LambdaFunctionURLResponse
	if json.Unmarshal(b, &r) != nil || r.StatusCode < 200 || r.StatusCode > 999 {
		w.Header().Set("Content-Type", "application/json")
		w.Write(b)
		return
	}
	out := []byte(r.Body)
	if r.IsBase64Encoded {
		if out, err = base64.StdEncoding.DecodeString(r.Body); err != nil {
			refuseFor(w, err)
			return
		}
	}
	(&head{r.StatusCode, r.Headers, r.Cookies}).write(w)
	w.Write(out)
}
