package bench
import ("testing";"os";"encoding/json";"flag")
var drv = flag.String("drv","","")
func TestDrv(t *testing.T){
 if *drv=="" {t.Skip("manual")}
 var o Options
 if err:=json.Unmarshal([]byte(*drv),&o);err!=nil{t.Fatal(err)}
 o=options(t,o); o.Stderr=os.Stderr
 r,err:=Run(t.Context(),o)
 if err!=nil{t.Fatal(err)}
 r.WriteJSON(os.Stdout)
}
